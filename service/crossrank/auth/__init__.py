"""Who may do what: tokens, scopes and rates. Knows nothing of HTTP or gRPC; both doors ask the same `Guard`."""
