"""What is predicted: quality, cost and latency of a plan.

models/ predicts; the LLMs are `Engine` and `ModelCard` in gateway/; database tables are gateway/store/tables.py.
"""
