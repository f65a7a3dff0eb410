"""Grafana dashboards and Prometheus rules, made from the catalogue of names: files to hand to an operator."""
