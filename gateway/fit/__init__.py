"""`trilemma fit`: what policies read that is made beforehand, and off the request path."""
