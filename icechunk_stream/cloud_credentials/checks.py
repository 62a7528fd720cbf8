"""What arguments of credentials functions go together."""

from __future__ import annotations

from icechunk_stream.errors import ErrorKind, InvalidInputError


def check_one(function: str, options: tuple[str | None, ...]) -> None:
    if sum(option is not None for option in options) != 1:
        message = f"{function} takes exactly one credential"
        raise InvalidInputError(message, ErrorKind.INVALID_CREDENTIALS)


def check_kinds(
    function: str,
    static: bool,
    anonymous: bool | None,
    from_env: bool | None,
    get_credentials: object,
) -> None:
    given = (static, bool(anonymous), bool(from_env), get_credentials is not None)
    if sum(given) > 1:
        message = f"{function}: give one of a credential, anonymous, from_env and get_credentials"
        raise InvalidInputError(message, ErrorKind.INVALID_CREDENTIALS)
