"""Owns the package name `plugins.memory`, where no provider is loaded yet."""
