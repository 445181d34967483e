"""`--mode rpc`: JSON lines in, JSON lines out."""
