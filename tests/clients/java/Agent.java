// A small agent in Java with the sidecar at its side. Where the sidecar is down, slow or refuses, it goes on with its last
// trimmed prompt and the messages since, and counts that.
//
//     java Agent TARGET LOG [SECONDS]
//
// TARGET is 127.0.0.1:7717, LOG the file that its tool reads, SECONDS the deadline of each call.

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.ByteString;
import dev.promptsidecar.v1.*;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.MetadataUtils;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public final class Agent {
  static final int BYTES = 64 << 20; // the sidecar's own bound; a client receives 4 MiB unless told
  static final Map<String, ?> SERVICE_CONFIG = Map.of("methodConfig", List.of(Map.of(
      "name", List.of(Map.of("service", "prompt_sidecar.v1.SidecarService")),
      "retryPolicy", Map.of("maxAttempts", 3.0, "initialBackoff", "0.05s", "maxBackoff", "0.5s",
          "backoffMultiplier", 2.0, "retryableStatusCodes", List.of("UNAVAILABLE")))));
  static final Metadata.Key<String> RUN = Metadata.Key.of("x-prompt-sidecar-run", Metadata.ASCII_STRING_MARSHALLER);
  static final Pattern LABEL = Pattern.compile("content \\w+ — id=(\\w+)");
  static final String OWN_TOOL = """
      {"type": "function", "function": {"name": "read_log", "description": "Read a day's log.",
       "parameters": {"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]}}}""";

  final SidecarServiceGrpc.SidecarServiceBlockingStub stub;
  final Path log;
  final double seconds;
  final String runId = UUID.randomUUID().toString();
  final JsonArray tools = new JsonArray(); // the agent's own, then the sidecar's
  final Set<String> sidecars = new HashSet<>(); // names of the sidecar's tools
  final JsonArray messages = new JsonArray();
  JsonArray sent = new JsonArray(); // the last trimmed prompt's messages
  int seen; // how many of the agent's they stand for
  ByteString revision = ByteString.EMPTY;
  int tokens = -1; // of the newest prompt, if it was trimmed
  int iterations, trimmed, untrimmed;
  boolean recalled, finished;

  Agent(ManagedChannel channel, Path log, double seconds) {
    this.stub = SidecarServiceGrpc.newBlockingStub(channel);
    this.log = log;
    this.seconds = seconds;
  }

  // How to reach the sidecar.
  static ManagedChannel connect(String target) {
    return ManagedChannelBuilder.forTarget(target)
        .usePlaintext()
        .proxyDetector(address -> null)
        .maxInboundMessageSize(BYTES) // what is sent has no bound in Java
        .defaultServiceConfig(SERVICE_CONFIG)
        .enableRetry()
        .build();
  }

  /** The stub with a deadline for the next call, all its attempts together. */
  SidecarServiceGrpc.SidecarServiceBlockingStub sidecar() {
    Metadata run = new Metadata();
    run.put(RUN, runId); // by which a load balancer keeps the run with one sidecar
    return stub.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(run))
        .withDeadlineAfter((long) (seconds * 1_000), TimeUnit.MILLISECONDS);
  }

  /** Stands in for the provider: reads twelve days of the log, recalls what the first label stands for, and is done. */
  static JsonObject model(String body, int turn) {
    Matcher label = LABEL.matcher(body);
    if (turn <= 12) return choose(turn, "read_log", "{\"day\": " + turn + "}");
    if (turn == 13 && label.find()) return choose(turn, "recall_elided_content", "{\"id\": \"" + label.group(1) + "\"}");
    return object("role", "assistant", "content", "I have read all twelve days.");
  }

  static JsonObject choose(int turn, String name, String arguments) {
    JsonObject call = object("id", "call_" + turn, "type", "function");
    call.add("function", object("name", name, "arguments", arguments));
    JsonArray calls = new JsonArray();
    calls.add(call);
    JsonObject message = object("role", "assistant", "content", "");
    message.add("tool_calls", calls);
    return message;
  }

  static JsonObject object(String... members) {
    JsonObject object = new JsonObject();
    for (int i = 0; i < members.length; i += 2) object.addProperty(members[i], members[i + 1]);
    return object;
  }

  // The sidecar's tools, beside the agent's own.
  void offer() {
    tools.add(JsonParser.parseString(OWN_TOOL));
    try {
      ListToolsRequest request = ListToolsRequest.newBuilder().setFormat(Format.FORMAT_OPENAI_CHAT).build();
      for (ToolDefinition tool : sidecar().listTools(request).getToolsList()) {
        tools.add(JsonParser.parseString(tool.getDefinitionJson().toStringUtf8()));
        sidecars.add(tool.getName());
      }
    } catch (StatusRuntimeException noSidecar) {
      // No recall then: the run goes on without.
    }
  }

  // What to send to the model: the trimmed prompt; without the sidecar the last one, and the messages since. The whole
  // untrimmed history would soon be more than the model takes.
  String trim(String body) {
    TrimPromptRequest request = TrimPromptRequest.newBuilder()
        .setRunId(runId)
        .setJson(JsonPrompt.newBuilder().setFormat(Format.FORMAT_OPENAI_CHAT).setBody(ByteString.copyFromUtf8(body)))
        .setContextWindow(16_000)
        .setOutputReserve(1_000)
        .setRecallUnavailable(sidecars.isEmpty())
        .setRevision(revision) // a restarted sidecar, or another replica, makes the same edits by it
        .setAcceptBytes(BYTES)
        .build();
    try {
      TrimPromptResponse answer = sidecar().trimPrompt(request);
      revision = answer.getRevision();
      tokens = answer.getTokens().getAfter();
      trimmed++;
      System.out.printf("iteration %d: trimmed%n", iterations);
      String prompt = answer.getJsonBody().toStringUtf8();
      sent = JsonParser.parseString(prompt).getAsJsonObject().getAsJsonArray("messages");
      seen = messages.size();
      return prompt;
    } catch (StatusRuntimeException error) {
      // A ceiling or the guard refused it: no model may get this prompt.
      if (error.getStatus().getCode() == Status.Code.FAILED_PRECONDITION) throw error;
      tokens = -1;
      untrimmed++; // in a real agent: a metric with an alert
      System.out.printf("iteration %d: untrimmed (%s)%n", iterations, error.getStatus().getCode());
      JsonArray fits = sent.deepCopy();
      for (int i = seen; i < messages.size(); i++) fits.add(messages.get(i));
      JsonObject prompt = JsonParser.parseString(body).getAsJsonObject();
      prompt.add("messages", fits);
      return prompt.toString();
    }
  }

  // Tells what the provider counted.
  void report() {
    if (tokens < 0) return;
    ReportUsageRequest request = ReportUsageRequest.newBuilder()
        .setRunId(runId)
        .setRevision(revision)
        .setInputTokens(tokens) // a real agent: the usage in the provider's answer
        .build();
    try {
      sidecar().reportUsage(request);
    } catch (StatusRuntimeException error) {
      // It costs a correction, no more.
    }
  }

  private static final Pattern MASKS = Pattern.compile("⟦|\\\\u27e6|%E2%9F%A6", Pattern.CASE_INSENSITIVE);

  // The arguments with values in place of masks, for this tool alone: the history keeps the call as the model wrote it.
  String restored(String tool, String arguments) {
    if (!MASKS.matcher(arguments).find()) return arguments;
    RestoreSecretsRequest request = RestoreSecretsRequest.newBuilder()
        .setRunId(runId)
        .addCalls(ToolArguments.newBuilder().setTool(tool).setArguments(ByteString.copyFromUtf8(arguments)))
        .build();
    try {
      return sidecar().restoreSecrets(request).getCalls(0).getArguments().toStringUtf8();
    } catch (StatusRuntimeException error) {
      return arguments; // a mask reveals nothing
    }
  }

  // Runs the tool that the model chose.
  String call(String name, String arguments) throws IOException {
    if (!sidecars.contains(name)) return readLog(restored(name, arguments));
    CallToolRequest request = CallToolRequest.newBuilder()
        .setRunId(runId)
        .setName(name)
        .setArgumentsJson(arguments)
        .setRequestId(UUID.randomUUID().toString()) // a retry changes nothing twice
        .build();
    try {
      CallToolResponse answer = sidecar().callTool(request);
      boolean hit = answer.getRecalled().getOutcome() == RetrieveOutcome.RETRIEVE_OUTCOME_HIT;
      recalled |= hit && answer.getContent().contains("Log of day 1\n");
      return answer.getContent(); // unchanged: it carries a tag by which the sidecar knows it later
    } catch (StatusRuntimeException error) {
      return "This tool does not answer now. Go on without it.";
    }
  }

  /** The agent's own tool. */
  String readLog(String arguments) throws IOException {
    int day = JsonParser.parseString(arguments).getAsJsonObject().get("day").getAsInt();
    return "Log of day " + day + "\n" + Files.readString(log);
  }

  void run() throws IOException {
    offer();
    messages.add(object("role", "user", "content", "What happened in these twelve days?"));
    while (!finished) {
      iterations++;
      JsonObject body = object("model", "gpt-4o");
      body.add("tools", tools);
      body.add("messages", messages);
      JsonObject answer = model(trim(body.toString()), iterations);
      report();
      messages.add(answer); // the agent's own history stays untrimmed
      finished = !answer.has("tool_calls");
      if (finished) break;
      for (JsonElement element : answer.getAsJsonArray("tool_calls")) {
        JsonObject made = element.getAsJsonObject();
        JsonObject function = made.getAsJsonObject("function");
        String content = call(function.get("name").getAsString(), function.get("arguments").getAsString());
        messages.add(object("role", "tool", "tool_call_id", made.get("id").getAsString(), "content", content));
      }
    }
    try {
      sidecar().endRun(EndRunRequest.newBuilder().setRunId(runId).build());
    } catch (StatusRuntimeException error) {
      // The run is forgotten with its time to live.
    }
    System.out.println(new Gson().toJson(Map.of("iterations", iterations, "trimmed", trimmed, "untrimmed", untrimmed,
        "recalled", recalled, "finished", finished)));
  }

  public static void main(String[] arguments) throws IOException, InterruptedException {
    ManagedChannel channel = connect(arguments[0]);
    new Agent(channel, Path.of(arguments[1]), arguments.length > 2 ? Double.parseDouble(arguments[2]) : 2).run();
    channel.shutdownNow().awaitTermination(1, TimeUnit.SECONDS);
  }
}
