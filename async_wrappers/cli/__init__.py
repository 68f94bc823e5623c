"""The commands of ``python -m async_wrappers``: each module adds its parsers, and says what runs them."""
