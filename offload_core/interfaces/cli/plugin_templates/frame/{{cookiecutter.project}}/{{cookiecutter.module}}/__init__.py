"""The {{ cookiecutter.noun }} {{ cookiecutter.name }} for pulsar-offload."""

from {{ cookiecutter.module }}.{{ cookiecutter.file }} import {{ cookiecutter.plugin }}

__all__ = ["{{ cookiecutter.plugin }}"]
