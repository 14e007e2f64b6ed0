"""Programs: forwards drawn operator by operator."""
