"""Token ids, chat templates and whole characters."""
