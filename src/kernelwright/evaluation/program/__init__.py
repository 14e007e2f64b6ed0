"""The program of a candidate: the records by which its process drives a device that another process owns."""
