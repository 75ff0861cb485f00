"""The driver {{ cookiecutter.name }} for pulsar-offload."""

from {{ cookiecutter.module }}.driver import {{ cookiecutter.driver }}

__all__ = ["{{ cookiecutter.driver }}"]
