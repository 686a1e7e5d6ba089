"""Calls come in, answers go out: REST, JSON-RPC, SSE and cards."""
