"""PyTensor graphs lowered to machine code that nopython loops call.

This is the only room that touches the internals of PyTensor and numba.
"""
