"""Numbers for operators, in the forms that Prometheus reads."""
