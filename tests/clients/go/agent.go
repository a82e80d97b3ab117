// A small agent in Go with the sidecar at its side. Where the sidecar is down, slow or refuses, it goes on with its last
// trimmed prompt and the messages since, and counts that.
//
//	agent TARGET LOG [SECONDS]
//
// TARGET is 127.0.0.1:7717 or unix:///path, LOG the file that its tool reads, SECONDS the deadline of each call.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "prompt-sidecar/prompt_sidecar/v1"
)

const size = 64 << 20 // the sidecar's own bound; a client receives 4 MiB unless told

// grpc-go before 1.40 retries only with GRPC_GO_RETRY=on in the environment.
const serviceConfig = `{"methodConfig": [{
	"name": [{"service": "prompt_sidecar.v1.SidecarService"}],
	"retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.05s", "maxBackoff": "0.5s", "backoffMultiplier": 2,
		"retryableStatusCodes": ["UNAVAILABLE"]}
}]}`

func connect(target, runID string, deadline time.Duration) (*grpc.ClientConn, error) {
	wait := backoff.DefaultConfig
	wait.MaxDelay = time.Second // a sidecar that is back is used again within a second
	bounded := func(ctx context.Context, method string, request, answer interface{}, connection *grpc.ClientConn,
		call grpc.UnaryInvoker, options ...grpc.CallOption) error {
		ctx, cancel := context.WithTimeout(ctx, deadline) // for all attempts together
		defer cancel()
		// By which a load balancer keeps the run with one sidecar.
		ctx = metadata.AppendToOutgoingContext(ctx, "x-prompt-sidecar-run", runID)
		return call(ctx, method, request, answer, connection, options...)
	}
	return grpc.Dial(target,
		grpc.WithInsecure(),
		grpc.WithUnaryInterceptor(bounded),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(size), grpc.MaxCallRecvMsgSize(size)))
}

type (
	function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	call struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
)

type message struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCalls  []call `json:"tool_calls,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
}

var label = regexp.MustCompile(`content \w+ — id=(\w+)`)

// model stands in for the provider: it reads twelve days of the log, recalls what the first label in its prompt stands
// for, and is done.
func model(body []byte, turn int) message {
	choose := func(name, arguments string) message {
		made := call{fmt.Sprintf("call_%d", turn), "function", function{name, arguments}}
		return message{Role: "assistant", ToolCalls: []call{made}}
	}
	found := label.FindSubmatch(body)
	switch {
	case turn <= 12:
		return choose("read_log", fmt.Sprintf(`{"day": %d}`, turn))
	case turn == 13 && found != nil:
		return choose("recall_elided_content", fmt.Sprintf(`{"id": "%s"}`, found[1]))
	}
	return message{Role: "assistant", Content: "I have read all twelve days."}
}

const ownTool = `{"type": "function", "function": {"name": "read_log", "description": "Read a day's log.",
	"parameters": {"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]}}}`

type agent struct {
	sidecar  pb.SidecarServiceClient
	log      string
	runID    string
	tools    []json.RawMessage // the agent's own, then the sidecar's
	sidecars map[string]bool   // names of the sidecar's tools
	messages []interface{}
	sent     []interface{} // the last trimmed prompt's messages
	seen     int           // how many of the agent's they stand for
	revision []byte
	tokens   *int32 // of the newest prompt, if it was trimmed

	Iterations int  `json:"iterations"`
	Trimmed    int  `json:"trimmed"`
	Untrimmed  int  `json:"untrimmed"`
	Recalled   bool `json:"recalled"`
	Finished   bool `json:"finished"`
}

// offer adds the sidecar's tools to the agent's own.
func (a *agent) offer() {
	a.tools = []json.RawMessage{json.RawMessage(ownTool)}
	a.sidecars = map[string]bool{}
	answer, err := a.sidecar.ListTools(context.Background(), &pb.ListToolsRequest{Format: pb.Format_FORMAT_OPENAI_CHAT})
	if err != nil {
		return // no sidecar, no recall: the run goes on without
	}
	for _, tool := range answer.Tools {
		a.tools = append(a.tools, tool.DefinitionJson)
		a.sidecars[tool.Name] = true
	}
}

// body is a request with these messages.
func (a *agent) body(messages []interface{}) []byte {
	body, _ := json.Marshal(map[string]interface{}{"model": "gpt-4o", "tools": a.tools, "messages": messages})
	return body
}

// trim returns what to send to the model: the trimmed body; without the sidecar the last one's messages, and those since.
// The whole untrimmed history would soon be more than the model takes.
func (a *agent) trim() []byte {
	reserve, body := int32(1_000), a.body(a.messages)
	answer, err := a.sidecar.TrimPrompt(context.Background(), &pb.TrimPromptRequest{
		RunId:             a.runID,
		Prompt:            &pb.TrimPromptRequest_Json{Json: &pb.JsonPrompt{Format: pb.Format_FORMAT_OPENAI_CHAT, Body: body}},
		ContextWindow:     16_000,
		OutputReserve:     &reserve,
		RecallUnavailable: len(a.sidecars) == 0,
		Revision:          a.revision, // a restarted sidecar, or another replica, makes the same edits by it
		AcceptBytes:       size,
	})
	if status.Code(err) == codes.FailedPrecondition {
		log.Fatal(err) // a ceiling or the guard refused it: no model may get this prompt
	}
	if err != nil {
		a.tokens = nil
		a.Untrimmed++ // in a real agent: a metric with an alert
		fmt.Printf("iteration %d: untrimmed (%s)\n", a.Iterations, status.Code(err))
		return a.body(append(append([]interface{}{}, a.sent...), a.messages[a.seen:]...))
	}
	a.revision, a.tokens = answer.Revision, &answer.Tokens.After
	a.Trimmed++
	fmt.Printf("iteration %d: trimmed\n", a.Iterations)
	var prompt struct{ Messages []interface{} }
	if json.Unmarshal(answer.GetJsonBody(), &prompt) == nil {
		a.sent, a.seen = prompt.Messages, len(a.messages)
	}
	return answer.GetJsonBody()
}

// report tells what the provider counted.
func (a *agent) report() {
	if a.tokens == nil {
		return
	}
	// InputTokens: a real agent takes the usage in the provider's answer. An error costs a correction, no more.
	usage := &pb.ReportUsageRequest{RunId: a.runID, Revision: a.revision, InputTokens: a.tokens}
	_, _ = a.sidecar.ReportUsage(context.Background(), usage)
}

// masks finds what may be a mask, however the model escaped it.
var masks = regexp.MustCompile(`(?i)⟦|\\u27e6|%E2%9F%A6`)

// restored returns the arguments with values in place of masks, for this tool alone: the history keeps the call as the
// model wrote it.
func (a *agent) restored(made function) string {
	if !masks.MatchString(made.Arguments) {
		return made.Arguments
	}
	answer, err := a.sidecar.RestoreSecrets(context.Background(), &pb.RestoreSecretsRequest{
		RunId: a.runID, Calls: []*pb.ToolArguments{{Tool: made.Name, Arguments: []byte(made.Arguments)}},
	})
	if err != nil {
		return made.Arguments // a mask reveals nothing
	}
	return string(answer.Calls[0].Arguments)
}

// call runs the tool that the model chose.
func (a *agent) call(made function) string {
	if !a.sidecars[made.Name] {
		return readLog(a.log, a.restored(made))
	}
	answer, err := a.sidecar.CallTool(context.Background(), &pb.CallToolRequest{
		RunId: a.runID, Name: made.Name, ArgumentsJson: made.Arguments, RequestId: newID(), // a retry changes nothing twice
	})
	if err != nil {
		return "This tool does not answer now. Go on without it."
	}
	hit := answer.GetRecalled().GetOutcome() == pb.RetrieveOutcome_RETRIEVE_OUTCOME_HIT
	a.Recalled = a.Recalled || hit && strings.Contains(answer.Content, "Log of day 1\n")
	return answer.Content // unchanged: it carries a tag by which the sidecar knows it later
}

func (a *agent) run() {
	a.offer()
	a.messages = []interface{}{message{Role: "user", Content: "What happened in these twelve days?"}}
	for !a.Finished {
		a.Iterations++
		answer := model(a.trim(), a.Iterations)
		a.report()
		a.messages = append(a.messages, answer) // the agent's own history stays untrimmed
		for _, made := range answer.ToolCalls {
			a.messages = append(a.messages, message{Role: "tool", ToolCallID: made.ID, Content: a.call(made.Function)})
		}
		a.Finished = len(answer.ToolCalls) == 0
	}
	// Or the run is forgotten with its time to live.
	_, _ = a.sidecar.EndRun(context.Background(), &pb.EndRunRequest{RunId: a.runID})
}

func readLog(path, arguments string) string {
	var input struct{ Day int }
	content, err := os.ReadFile(path)
	if err != nil || json.Unmarshal([]byte(arguments), &input) != nil {
		return "This log cannot be read."
	}
	return fmt.Sprintf("Log of day %d\n%s", input.Day, content)
}

func newID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	return hex.EncodeToString(id)
}

func main() {
	arguments := append(os.Args[1:], "2")
	if len(arguments) < 3 {
		log.Fatal("usage: agent TARGET LOG [SECONDS]")
	}
	seconds, err := strconv.ParseFloat(arguments[2], 64)
	if err != nil {
		log.Fatal(err)
	}
	runID := newID()
	connection, err := connect(arguments[0], runID, time.Duration(seconds*float64(time.Second)))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	a := &agent{sidecar: pb.NewSidecarServiceClient(connection), log: arguments[1], runID: runID}
	a.run()
	last, _ := json.Marshal(a)
	fmt.Println(string(last))
}
