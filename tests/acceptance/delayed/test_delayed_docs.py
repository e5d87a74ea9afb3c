"""docs/from-the-plugin.md: what it says happens. `make languages` runs the lines in Java."""

import re
from pathlib import Path

import pika
import pytest
from language_support import JARS, compile_with, install
from node_support import node, npm_install, run

ROOT = Path(__file__).parents[3]
PAGE, NODE = ROOT / "docs" / "from-the-plugin.md", ROOT / "examples" / "node"


def test_the_first_three_lines_do_what_they_say(shop):
    [lines] = re.findall(r"\A# [^\n]+\n\n```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert lines.count("\n") == 3
    exec(lines, {"channel": shop.channel, "pika": pika})
    [(_, properties, body)] = shop.take("reminders", 1)
    assert (body, properties.headers) == (b"hello", {"x-delay": -500})


def test_the_python_after_works_and_differs_from_before_by_one_name(shop):
    section = PAGE.read_text(encoding="utf-8").split("### Python (pika)")[1]
    [code] = re.findall(r"```py\n(.*?)```", section, flags=re.DOTALL)[:1]
    before, after = code.split("# after")
    *_, old = before.strip().splitlines()
    _, *lines = after.strip().splitlines()
    assert old.replace('"orders"', '"orders.delay"') == lines[-1]
    shop.channel.queue_declare("billing", durable=True)
    exec("\n".join(lines).replace("60_000", "60"), {"channel": shop.channel, "pika": pika, "body": b"placed"})
    [(method, _, body)] = shop.take("billing", 1)
    assert (method.exchange, method.routing_key, body) == ("orders", "order.placed", b"placed")


def test_the_node_after_works(shop, tmp_path):
    npm_install(NODE)
    section = PAGE.read_text(encoding="utf-8").split("### Node.js (amqplib)")[1]
    [code] = re.findall(r"```javascript\n(.*?)```", section, flags=re.DOTALL)[:1]
    lines = code.split("// after\n")[1].replace("60000", "60").replace("billing", "billing_node")
    script = tmp_path / "after.js"
    script.write_text(f"""
        const amqp = require({str(NODE / "node_modules" / "amqplib")!r});
        (async () => {{
          const connection = await amqp.connect(process.argv[2]);
          const channel = await connection.createConfirmChannel();
          await channel.assertQueue('billing_node');
          const body = Buffer.from('from node');
          {lines}
          await channel.waitForConfirms();
          await connection.close();
        }})();
    """)
    run(node(), str(script), shop.url)
    [(method, properties, body)] = shop.take("billing_node", 1)
    assert (method.exchange, properties.headers, body) == ("orders", {"x-delay": -60}, b"from node")


@pytest.mark.languages
def test_the_java_after_works(shop, tmp_path):
    install("java")
    section = PAGE.read_text(encoding="utf-8").split("### Java (amqp-client)")[1]
    [code] = re.findall(r"```java\n(.*?)```", section, flags=re.DOTALL)[:1]
    before, after = code.split("// after\n")
    properties = next(line for line in before.splitlines() if line.startswith("var properties"))
    lines = f"{properties}\n{after}".replace("60_000", "60").replace("billing", "billing_java")
    (tmp_path / "After.java").write_text(f"""
        import com.rabbitmq.client.*;
        import java.util.Map;

        public class After {{
            public static void main(String[] arguments) throws Exception {{
                var factory = new ConnectionFactory();
                factory.setUri(arguments[0]);
                try (var connection = factory.newConnection(); var channel = connection.createChannel()) {{
                    channel.confirmSelect();
                    channel.queueDeclare("billing_java", true, false, false, null);
                    var body = "from java".getBytes();
                    {lines}
                    channel.waitForConfirmsOrDie();
                }}
            }}
        }}
    """)
    compile_with(tmp_path, "javac", "-cp", JARS, "After.java")
    compile_with(tmp_path, "java", "-cp", JARS, "After", shop.url)
    [(method, properties, body)] = shop.take("billing_java", 1)
    assert (method.exchange, properties.headers, body) == ("orders", {"x-delay": -60}, b"from java")
