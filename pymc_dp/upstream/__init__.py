"""Parts of PyMC, PyTensor and numba that are not public: each is imported here, and nowhere else.

``docs/explanation/upstream.md`` says of each what it is for and which public way is missing;
``tests/test_upstream.py`` names those that have moved.
"""
