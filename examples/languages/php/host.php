<?php
// A host in PHP: schedule and cancel reminders, consume events without duplicates, report a result.
//
//   composer require php-amqplib/php-amqplib     (Debian: apt-get install php-amqplib)
//   AMQP_URL=amqp://guest:guest@localhost:5672/%2F php host.php

declare(strict_types=1);

require is_file(__DIR__ . '/vendor/autoload.php') ? __DIR__ . '/vendor/autoload.php' : 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;

$url = parse_url(getenv('AMQP_URL') ?: 'amqp://guest:guest@localhost:5672/%2F');
$connection = new AMQPStreamConnection(
    $url['host'], $url['port'] ?? 5672, urldecode($url['user'] ?? 'guest'), urldecode($url['pass'] ?? 'guest'),
    urldecode(substr($url['path'] ?? '/%2F', 1)),
);
$channel = $connection->channel();
$channel->confirm_select();
$channel->set_nack_handler(fn () => throw new RuntimeException('the broker rejected the message'));
$channel->set_return_listener(fn () => throw new RuntimeException('no queue: start the sidecar once on this virtual host'));

/** Publish a command or a result, and wait for the broker's confirm. */
$send = function (string $key, array $body) use ($channel): void {
    $message = new AMQPMessage(json_encode($body, JSON_THROW_ON_ERROR), [
        'content_type' => 'application/json', 'delivery_mode' => AMQPMessage::DELIVERY_MODE_PERSISTENT,
    ]);
    $channel->basic_publish($message, 'schedule.commands', $key, true); // mandatory: without a sidecar it is returned
    $channel->wait_for_pending_acks_returns();
};

/** The time with microseconds; as issued_at, so that the latest command for a job wins. */
$at = fn (string $when = 'now'): string => (new DateTimeImmutable($when))->format('Y-m-d\TH:i:s.uP');

/** A random UUID; keep it with your invoice: the same id replaces or cancels the job. */
$uuid = function (): string {
    $bytes = random_bytes(16);
    $bytes[6] = chr(ord($bytes[6]) & 0x0f | 0x40);
    $bytes[8] = chr(ord($bytes[8]) & 0x3f | 0x80);
    return vsprintf('%s%s-%s-%s-%s-%s%s%s', str_split(bin2hex($bytes), 4));
};

$job = $uuid();
$send('request', [
    'id' => $job, 'job_type' => 'invoice.reminder', 'payload' => ['invoice' => 42],
    'run_at' => $at('+2 seconds'), 'issued_at' => $at(),
    'run' => ['max_attempts' => 3, 'timeout' => 60], // tracked: retried until `succeeded` is reported
]);
echo "requested $job\n";

$unwanted = $uuid();
$send('request', ['id' => $unwanted, 'job_type' => 'invoice.reminder', 'cron' => '0 9 * * 1', 'issued_at' => $at()]);
$send('cancel', ['id' => $unwanted, 'issued_at' => $at()]);
echo "cancelled $unwanted\n";

$handled = []; // a table with a primary key in a real host, in the transaction of the effect
$channel->basic_qos(0, 10, false);
$channel->basic_consume('mainapp_due', callback: function (AMQPMessage $message) use ($send, $job, &$handled): void {
    $event = json_decode($message->getBody(), true, flags: JSON_THROW_ON_ERROR);
    $attempt = $event['run']['attempt'] ?? null;
    $key = "{$event['event_id']} $attempt"; // each attempt of a run is new work
    if (isset($handled[$key])) {
        echo "skipped a duplicate of invoice {$event['payload']['invoice']}\n";
    } else {
        echo "reminded of invoice {$event['payload']['invoice']}, due at {$event['due_at']}\n";
        $handled[$key] = true;
    }
    if ($attempt !== null) {
        $send('result', [
            'event_id' => $event['event_id'], 'attempt' => $attempt, 'status' => 'succeeded', 'worker' => 'php-1',
        ]);
        echo "reported attempt $attempt\n";
    }
    $message->ack();
    if ($event['job_id'] === $job) {
        $message->getChannel()->basic_cancel($message->getConsumerTag());
    }
});
while ($channel->is_consuming()) {
    $channel->wait();
}
$connection->close();
