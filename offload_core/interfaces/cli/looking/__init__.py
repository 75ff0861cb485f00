"""What lies in a bucket, looked at."""
