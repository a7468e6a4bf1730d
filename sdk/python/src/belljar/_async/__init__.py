"""The client for `asyncio`. `belljar._sync` is made from this folder by `mirror.py`, except its `connection.py`."""
