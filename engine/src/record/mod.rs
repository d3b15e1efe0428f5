//! Byte formats of records and batches; knows no files, logs or time.
