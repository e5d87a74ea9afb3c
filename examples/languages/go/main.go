// A host in Go: schedule and cancel reminders, consume events without duplicates, report a result.
//
//	AMQP_URL=amqp://guest:guest@localhost:5672/%2F go run .
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Event is a ScheduleDue; fields that this host does not use are left out.
type Event struct {
	EventID string                 `json:"event_id"`
	JobID   string                 `json:"job_id"`
	Payload struct{ Invoice int } `json:"payload"`
	DueAt   time.Time              `json:"due_at"`
	Run     *struct{ Attempt int } `json:"run"` // nil if the job is not tracked
}

type fields map[string]interface{}

type host struct {
	channel  *amqp.Channel
	returned chan amqp.Return
}

// send publishes a command or a result, and waits for the broker's confirm.
func (h host) send(key string, body fields) {
	encoded, err := json.Marshal(body)
	check(err)
	confirm, err := h.channel.PublishWithDeferredConfirmWithContext(context.Background(), "schedule.commands", key,
		true, false, // mandatory: without a sidecar the message is returned
		amqp.Publishing{ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: encoded})
	check(err)
	if !confirm.Wait() {
		log.Fatal("the broker rejected the message")
	}
	select {
	case <-h.returned:
		log.Fatal("no queue: start the sidecar once on this virtual host")
	default:
	}
}

func main() {
	url := os.Getenv("AMQP_URL")
	if url == "" {
		url = "amqp://guest:guest@localhost:5672/%2F"
	}
	connection, err := amqp.Dial(url)
	check(err)
	defer connection.Close()
	channel, err := connection.Channel()
	check(err)
	check(channel.Confirm(false))
	h := host{channel, channel.NotifyReturn(make(chan amqp.Return, 10))}

	job := newID() // keep it with your invoice: the same id replaces or cancels the job
	now := time.Now().UTC()
	h.send("request", fields{
		"id": job, "job_type": "invoice.reminder", "payload": fields{"invoice": 42},
		"run_at": now.Add(2 * time.Second), "issued_at": now, // the latest command for a job wins
		"run": fields{"max_attempts": 3, "timeout": 60}, // tracked: retried until `succeeded` is reported
	})
	fmt.Println("requested", job)

	unwanted := newID()
	h.send("request", fields{"id": unwanted, "job_type": "invoice.reminder", "cron": "0 9 * * 1", "issued_at": now})
	h.send("cancel", fields{"id": unwanted, "issued_at": time.Now().UTC()})
	fmt.Println("cancelled", unwanted)

	check(channel.Qos(10, 0, false))
	deliveries, err := channel.Consume("mainapp_due", "", false, false, false, false, nil)
	check(err)
	handled := map[string]bool{} // a table with a primary key in a real host, in the transaction of the effect
	for delivery := range deliveries {
		var event Event
		check(json.Unmarshal(delivery.Body, &event))
		key := event.EventID
		if event.Run != nil {
			key += fmt.Sprint(" ", event.Run.Attempt) // each attempt of a run is new work
		}
		if handled[key] {
			fmt.Println("skipped a duplicate of invoice", event.Payload.Invoice)
		} else {
			fmt.Printf("reminded of invoice %d, due at %s\n", event.Payload.Invoice, event.DueAt.Format(time.RFC3339))
			handled[key] = true
		}
		if event.Run != nil {
			h.send("result", fields{
				"event_id": event.EventID, "attempt": event.Run.Attempt, "status": "succeeded", "worker": "go-1",
			})
			fmt.Println("reported attempt", event.Run.Attempt)
		}
		check(delivery.Ack(false))
		if event.JobID == job {
			return
		}
	}
	log.Fatal("the connection was closed")
}

// newID returns a random UUID.
func newID() string {
	b := make([]byte, 16)
	_, err := rand.Read(b)
	check(err)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
