// A small agent in C++ with the sidecar at its side. It has types of its own for messages, so it sends them typed, as a
// `conversation`. Where the sidecar is down, slow or refuses, it goes on with its last trimmed prompt and the messages
// since, and counts that.
//
//     agent TARGET LOG [SECONDS]
//
// TARGET is 127.0.0.1:7717 or unix:///path, LOG the file that its tool reads, SECONDS the deadline of each call.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

#include "prompt_sidecar/v1/service.grpc.pb.h"

namespace pb = prompt_sidecar::v1;

constexpr int kBytes = 64 << 20;  // the sidecar's own bound; a client receives 4 MiB unless told
constexpr char kServiceConfig[] = R"({"methodConfig": [{
  "name": [{"service": "prompt_sidecar.v1.SidecarService"}],
  "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.05s", "maxBackoff": "0.5s", "backoffMultiplier": 2,
                  "retryableStatusCodes": ["UNAVAILABLE"]}
}]})";

// How to reach the sidecar.
std::unique_ptr<pb::SidecarService::Stub> Connect(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(kBytes);
  arguments.SetMaxReceiveMessageSize(kBytes);
  arguments.SetServiceConfigJSON(kServiceConfig);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);  // a sidecar that is back is used again within a second
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return pb::SidecarService::NewStub(grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
}

std::string NewId() {
  std::random_device random;
  std::ostringstream id;
  for (int i = 0; i < 4; ++i) id << std::hex << std::setw(8) << std::setfill('0') << random();
  return id.str();
}

// Stands in for the provider: it reads twelve days of the log, recalls what the first label in its prompt stands for, and
// is done.
pb::Message Model(const pb::Conversation& prompt, int turn) {
  static const std::regex kLabel("content \\w+ — id=(\\w+)");
  std::smatch label;
  for (const auto& message : prompt.messages()) {
    for (const auto& part : message.parts()) {
      if (label.empty()) std::regex_search(part.tool_result().text(), label, kLabel);
    }
  }
  pb::Message answer;
  answer.set_role(pb::ROLE_ASSISTANT);
  pb::Part* part = answer.add_parts();
  if (turn > 12 && (turn > 13 || label.empty())) {
    part->set_text("I have read all twelve days.");
    return answer;
  }
  pb::ToolCall* call = part->mutable_tool_call();
  call->set_id("call_" + std::to_string(turn));
  call->set_name(turn <= 12 ? "read_log" : "recall_elided_content");
  call->set_arguments_json(turn <= 12 ? "{\"day\": " + std::to_string(turn) + "}" : "{\"id\": \"" + label.str(1) + "\"}");
  return answer;
}

class Agent {
 public:
  Agent(const std::string& target, std::string log, double seconds)
      : sidecar_(Connect(target)), log_(std::move(log)), seconds_(seconds) {}

  void Run() {
    Offer();
    pb::Message* question = history_.add_messages();
    question->set_role(pb::ROLE_USER);
    question->add_parts()->set_text("What happened in these twelve days?");
    while (!finished_) {
      ++iterations_;
      const pb::Message answer = Model(Trim(), iterations_);
      Report();
      *history_.add_messages() = answer;  // the agent's own history stays untrimmed
      finished_ = true;
      for (const auto& part : answer.parts()) {
        if (!part.has_tool_call()) continue;
        finished_ = false;
        pb::Message* message = history_.add_messages();
        message->set_role(pb::ROLE_TOOL);
        pb::ToolResult* result = message->add_parts()->mutable_tool_result();
        result->set_call_id(part.tool_call().id());
        result->set_text(Call(part.tool_call()));
      }
    }
    pb::EndRunRequest request;  // or the run is forgotten with its time to live
    request.set_run_id(run_id_);
    pb::EndRunResponse ended;
    Ask(&pb::SidecarService::Stub::EndRun, request, &ended);
    std::cout << std::boolalpha << "{\"iterations\":" << iterations_ << ",\"trimmed\":" << trimmed_
              << ",\"untrimmed\":" << untrimmed_ << ",\"recalled\":" << recalled_ << ",\"finished\":" << finished_ << "}\n";
  }

 private:
  // One call with a deadline for all its attempts.
  template <typename Request, typename Answer>
  grpc::Status Ask(grpc::Status (pb::SidecarService::Stub::*method)(grpc::ClientContext*, const Request&, Answer*),
                   const Request& request, Answer* answer) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(int(seconds_ * 1000)));
    context.AddMetadata("x-prompt-sidecar-run", run_id_);  // by which a load balancer keeps the run with one sidecar
    return (sidecar_.get()->*method)(&context, request, answer);
  }

  // The sidecar's tools, beside the agent's own.
  void Offer() {
    pb::ListToolsResponse answer;  // without a format: name, description and parameters, for types of the agent's own
    Ask(&pb::SidecarService::Stub::ListTools, pb::ListToolsRequest(), &answer);
    for (const auto& tool : answer.tools()) tools_.insert(tool.name());  // none without a sidecar: no recall then
  }

  // What to send to the model: the trimmed prompt; without the sidecar the last one, and the messages since. The whole
  // untrimmed history would soon be more than the model takes.
  pb::Conversation Trim() {
    pb::TrimPromptRequest request;
    request.set_run_id(run_id_);
    *request.mutable_conversation() = history_;
    request.set_model("gpt-4o");
    request.set_context_window(16000);
    request.set_output_reserve(1000);
    request.set_recall_unavailable(tools_.empty());
    request.set_revision(revision_);  // a restarted sidecar, or another replica, makes the same edits by it
    request.set_accept_bytes(kBytes);
    pb::TrimPromptResponse answer;
    const grpc::Status status = Ask(&pb::SidecarService::Stub::TrimPrompt, request, &answer);
    tokens_ = status.ok() ? answer.tokens().after() : -1;
    if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION) {
      throw std::runtime_error(status.error_message());  // a ceiling or the guard refused it: no model may get it
    }
    if (!status.ok()) {
      ++untrimmed_;  // in a real agent: a metric with an alert
      std::cout << "iteration " << iterations_ << ": untrimmed (" << status.error_code() << ")" << std::endl;
      pb::Conversation prompt = sent_;
      for (int i = seen_; i < history_.messages_size(); ++i) *prompt.add_messages() = history_.messages(i);
      return prompt;
    }
    revision_ = answer.revision();
    ++trimmed_;
    std::cout << "iteration " << iterations_ << ": trimmed" << std::endl;
    sent_ = answer.conversation();
    seen_ = history_.messages_size();
    return sent_;
  }

  // Tells what the provider counted.
  void Report() {
    if (tokens_ < 0) return;
    pb::ReportUsageRequest request;
    request.set_run_id(run_id_);
    request.set_revision(revision_);
    request.set_input_tokens(tokens_);  // a real agent: the usage in the provider's answer
    pb::ReportUsageResponse answer;
    Ask(&pb::SidecarService::Stub::ReportUsage, request, &answer);  // an error costs a correction, no more
  }

  // The arguments with values in place of masks, for this tool alone: the history keeps the call as the model wrote it.
  std::string Restored(const pb::ToolCall& call) {
    static const std::regex masks("\xE2\x9F\xA6|\\\\u27e6|%E2%9F%A6", std::regex::icase);
    if (!std::regex_search(call.arguments_json(), masks)) return call.arguments_json();
    pb::RestoreSecretsRequest request;
    request.set_run_id(run_id_);
    pb::ToolArguments* made = request.add_calls();
    made->set_tool(call.name());
    made->set_arguments(call.arguments_json());
    pb::RestoreSecretsResponse answer;
    if (!Ask(&pb::SidecarService::Stub::RestoreSecrets, request, &answer).ok()) return call.arguments_json();
    return answer.calls(0).arguments();  // without the sidecar the mask stays, which reveals nothing
  }

  // Runs the tool that the model chose.
  std::string Call(const pb::ToolCall& call) {
    if (!tools_.count(call.name())) return ReadLog(Restored(call));
    pb::CallToolRequest request;
    request.set_run_id(run_id_);
    request.set_name(call.name());
    request.set_arguments_json(call.arguments_json());
    request.set_request_id(NewId());  // a retry changes nothing twice
    pb::CallToolResponse answer;
    if (!Ask(&pb::SidecarService::Stub::CallTool, request, &answer).ok()) {
      return "This tool does not answer now. Go on without it.";
    }
    const bool hit = answer.recalled().outcome() == pb::RETRIEVE_OUTCOME_HIT;
    recalled_ = recalled_ || (hit && answer.content().find("Log of day 1\n") != std::string::npos);
    return answer.content();  // unchanged: it carries a tag by which the sidecar knows it later
  }

  // The agent's own tool.
  std::string ReadLog(const std::string& arguments) const {
    std::smatch day;
    std::regex_search(arguments, day, std::regex("\\d+"));
    std::ostringstream content;
    content << "Log of day " << day.str() << "\n" << std::ifstream(log_).rdbuf();
    return content.str();
  }

  const std::unique_ptr<pb::SidecarService::Stub> sidecar_;
  const std::string log_;
  const double seconds_;
  const std::string run_id_ = NewId();
  std::set<std::string> tools_;  // names of the sidecar's tools
  pb::Conversation history_;
  pb::Conversation sent_;  // the last trimmed prompt
  int seen_ = 0;           // how many messages of the history it stands for
  std::string revision_;
  int tokens_ = -1;  // of the newest prompt, if it was trimmed
  int iterations_ = 0, trimmed_ = 0, untrimmed_ = 0;
  bool recalled_ = false, finished_ = false;
};

int main(int count, char** arguments) {
  if (count < 3) {
    std::cerr << "usage: agent TARGET LOG [SECONDS]\n";
    return 2;
  }
  Agent(arguments[1], arguments[2], count > 3 ? std::stod(arguments[3]) : 2).Run();
}
