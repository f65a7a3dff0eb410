"""Prometheus: the scrape table, the endpoint that answers with it, and pushes."""
