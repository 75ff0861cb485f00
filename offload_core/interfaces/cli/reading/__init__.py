"""What lies in a bucket, read: messages, exports, schemas."""
