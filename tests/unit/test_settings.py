import pytest

from scheduler.domain.errors import Misconfigured
from scheduler.settings import Settings, load


def test_the_defaults_are_the_contracts():
    assert load({}) == Settings()
    assert Settings().database_url == "postgresql://localhost/scheduler"
    assert Settings().amqp_urls == ("amqp://guest:guest@localhost:5672/%2F",)


def test_values_are_typed():
    loaded = load({
        "AMQP_URL": "amqp://a:b@one/%2F, amqps://a:b@two:5671/v", "METRICS_PORT": "0", "SCHEDULER_BATCH_SIZE": "7",
        "SCHEDULER_QUEUE_TYPE": "classic", "LOG_FORMAT": "text", "LOG_LEVEL": "WARNING",
    })
    assert loaded.amqp_urls == ("amqp://a:b@one/%2F", "amqps://a:b@two:5671/v")
    assert (loaded.metrics_port, loaded.batch_size, loaded.queue_type) == (0, 7, "classic")
    assert (loaded.log_format, loaded.log_level) == ("text", "warning")


@pytest.mark.parametrize(("name", "value"), [
    ("METRICS_PORT", "70000"), ("METRICS_PORT", "x"),
    ("SCHEDULER_BATCH_SIZE", "0"), ("SCHEDULER_BATCH_SIZE", "1_0"),
    ("SCHEDULER_PREFETCH", "-1"), ("SCHEDULER_QUEUE_TYPE", "stream"), ("LOG_LEVEL", "loud"), ("LOG_FORMAT", "xml"),
    ("SCHEDULER_POLL_INTERVAL_MS", "٣"), ("DATABASE_URL", "mysql://u:secret@h/d"),
    ("AMQP_URL", "http://u:secret@h"),
    ("AMQP_URL", "amqp://u:secret@h:99999/"), ("AMQP_URL", "amqp://u:secret@h,"), ("SCHEDULER_BACTH_SIZE", "5"),
])
def test_a_mistake_names_its_variable_and_no_secret(name, value):
    with pytest.raises(Misconfigured) as caught:
        load({name: value})
    assert name in str(caught.value)
    assert "secret" not in str(caught.value)


def test_worker_variables_are_not_settings():
    told = {"SCHEDULER_EVENT_ID": "e", "SCHEDULER_JOB_ID": "j", "SCHEDULER_ATTEMPT": "1"}
    assert load(told) == Settings()


def test_every_mistake_is_reported_together():
    with pytest.raises(Misconfigured, match=r"METRICS_PORT.*SCHEDULER_PREFETCH.*SCHEDULER_X"):
        load({"METRICS_PORT": "x", "SCHEDULER_PREFETCH": "x", "SCHEDULER_X": ""})


def test_a_removed_setting_is_an_error_that_names_the_remedy():
    with pytest.raises(Misconfigured, match=r"SCHEDULER_API_PROCESSES was removed; .*load balancer"):
        load({"SCHEDULER_API_PROCESSES": "4"})


def test_a_secret_can_be_read_from_a_file(tmp_path):
    file = tmp_path / "url"
    file.write_text("postgresql://u:p@h/d\n")
    assert load({"DATABASE_URL_FILE": str(file)}).database_url == "postgresql://u:p@h/d"
    with pytest.raises(Misconfigured, match="both set"):
        load({"DATABASE_URL_FILE": str(file), "DATABASE_URL": "postgresql://h/d"})
    with pytest.raises(Misconfigured, match="AMQP_URL cannot be read from AMQP_URL_FILE"):
        load({"AMQP_URL_FILE": str(tmp_path / "absent")})


def test_queues_for_replies_and_routes_of_tenants():
    assert (load({}).reply_queues, load({}).tenant_routes) == ((), "any")
    loaded = load({"SCHEDULER_REPLY_QUEUES": "shop.*, mails", "SCHEDULER_TENANT_ROUTES": "prefix"})
    assert (loaded.reply_queues, loaded.tenant_routes) == (("shop.*", "mails"), "prefix")
    for name, value in (("SCHEDULER_REPLY_QUEUES", " , "), ("SCHEDULER_REPLY_QUEUES", "a" * 256),
                        ("SCHEDULER_TENANT_ROUTES", "suffix")):
        with pytest.raises(Misconfigured, match=name):
            load({name: value})
