"""Airflow: operators that offload, verify and export, and a sensor that waits until a topic is offloaded so far."""
