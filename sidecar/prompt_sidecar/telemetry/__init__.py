"""Facts to instruments and spans: what the core says happened, told in OpenTelemetry's words."""
