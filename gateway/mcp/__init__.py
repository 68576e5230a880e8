"""The servers whose tools the assistant has (ADR 55)."""
