"""What lies in a bucket, verified and changed."""
