"""Commands that measure; what they gave stands in docs/performance.md."""
