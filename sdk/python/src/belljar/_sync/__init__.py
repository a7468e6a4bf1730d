"""The blocking client. Made from `belljar._async` by `mirror.py`, except `connection.py`."""
