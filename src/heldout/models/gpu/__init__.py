"""Prediction on GPUs: decode on the device, run in half precision, run near ties again exactly."""
