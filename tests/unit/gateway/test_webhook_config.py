"""The configuration of webhook mode: what can not work is said before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigError
from gateway.config.environment import Home, Secrets, read_secrets
from gateway.config.loading import parse_config
from gateway.config.models import Config, unavailable
from gateway.wiring.platforms import check_platforms
from gateway.wiring.surroundings import Surroundings

URL = "https://bot.example.org/telegram"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{mode: webhook}", "webhook.url must say where Telegram reaches it"),
        ("{mode: webhook, webhook: {url: null}}", "https://bot.example.org/telegram"),
        ("{mode: webhook, webhook: {url: 'http://bot.example.org'}}", "begin with https"),
        ("{mode: webhook, webhook: {url: bot.example.org}}", "whole address"),
        ("{mode: webhook, webhook: {url: 'https://bot.example.org:9443/t'}}", "443, 80, 88 and"),
        (f"{{mode: webhook, webhook: {{url: '{URL}?x=1'}}}}", "without ? and #"),
        (f"{{mode: webhook, webhook: {{url: '{URL}#x'}}}}", "without ? and #"),
        (f"{{mode: webhook, webhook: {{url: '{URL}', port: 70000}}}}", "telegram.webhook.port"),
        (f"{{mode: webhook, webhook: {{url: '{URL}', host: ''}}}}", "telegram.webhook.host"),
        (f"{{mode: webhook, webhook: {{url: '{URL}', secret: 'a b'}}}}", "telegram.webhook.secret"),
        ("{mode: hook}", "telegram.mode"),
    ],
)
def test_what_can_not_work_is_said(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"telegram: {text}", "c.yaml")
    assert any(expected in line for line in caught.value.problems), caught.value.problems
    assert "a b" not in str(caught.value)


def test_what_works() -> None:
    config, _ = parse_config(f"telegram: {{mode: webhook, webhook: {{url: '{URL}'}}}}", "c.yaml")
    assert unavailable(config) == []
    parse_config("telegram: {mode: webhook, webhook: {url: 'https://bot.example.org:88'}}", "")
    # Another Bot API server, on this machine say, may be reached without TLS.
    local = "base_url: 'http://127.0.0.1:8081/bot', webhook: {url: 'http://127.0.0.1:8443'}"
    parse_config(f"telegram: {{mode: webhook, {local}}}", "c.yaml")


def test_the_secret_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from-a-file\n")
    secrets = read_secrets({"TELEGRAM_WEBHOOK_SECRET_FILE": str(file)})
    assert secrets.telegram_webhook_secret == "from-a-file"
    assert "from-a-file" in secrets.values()
    assert "from-a-file" not in repr(secrets)
    odd = Secrets("1:token", telegram_webhook_secret="no spaces, please")
    around = Surroundings(Home(tmp_path, "test"), odd, {})
    with pytest.raises(ConfigError, match="TELEGRAM_WEBHOOK_SECRET") as caught:
        check_platforms(Config(), around)
    assert "spaces" not in str(caught.value)


def test_tokens_that_are_swapped_are_named(tmp_path: Path) -> None:
    """Each platform would only say that it refuses its token."""
    telegram, discord = "123456789:AAloopback-token_000", "MTk4NjIy.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7k"
    check_platforms(Config(), Surroundings(Home(tmp_path, "test"), Secrets(telegram, discord), {}))
    swapped = Surroundings(Home(tmp_path, "test"), Secrets(discord, telegram), {})
    with pytest.raises(ConfigError, match="are swapped") as caught:
        check_platforms(Config(), swapped)
    assert telegram not in str(caught.value)
    # One wrong token is that platform's trouble alone.
    half = Surroundings(Home(tmp_path, "test"), Secrets(telegram, telegram), {})
    check_platforms(Config(), half)
