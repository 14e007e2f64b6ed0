"""Compares outputs with the reference's: on the host (numpy), on the device (torch), and a second look."""
