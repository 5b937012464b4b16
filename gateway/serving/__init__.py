"""The life of a request: admit, resolve, decide, execute, answer, settle. Plain functions on bytes, free of ASGI."""
