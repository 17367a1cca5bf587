#include "cli/completion.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/text.h"

namespace walpost::cli {
namespace {

struct OptionText {
  std::string name;  // --name, -n; of a positional argument its name
  std::string help;
  std::string value;  // what it takes; empty = nothing
  std::string preset;
  bool positional = false;
};

struct Verb {
  std::string path;  // "slot list"; empty = the program
  std::string help;
  std::vector<Verb> verbs;
  std::vector<OptionText> options;
};

Verb VerbOf(const CLI::App& app, const std::string& path) {
  Verb verb{path, app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    const bool positional = option->get_positional();
    const std::string value = option->get_expected_max() == 0 ? ""
                              : positional                    ? "VALUE"
                                                              : option->get_type_name();
    if (positional) {
      verb.options.push_back({option->get_name(true, false), option->get_description(), value,
                              option->get_default_str(), true});
    }
    for (const std::string& name : option->get_lnames()) {
      verb.options.push_back(
          {"--" + name, option->get_description(), value, option->get_default_str()});
    }
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_group().empty()) {  // else it is hidden
      verb.verbs.push_back(
          VerbOf(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name()));
    }
  }
  return verb;
}

std::string NameOf(const Verb& verb) { return verb.path.substr(verb.path.rfind(' ') + 1); }

std::string ParentOf(const Verb& verb) {
  const std::size_t space = verb.path.rfind(' ');
  return space == std::string::npos ? "" : verb.path.substr(0, space);
}

// The program first, each verb before those below it.
void Flatten(const Verb& verb, std::vector<const Verb*>* all) {
  all->push_back(&verb);
  for (const Verb& below : verb.verbs) {
    Flatten(below, all);
  }
}

// The program's own options may stand behind each verb.
std::vector<OptionText> OptionsOf(const Verb& verb, const Verb& program) {
  std::vector<OptionText> options = verb.options;
  if (&verb != &program) {
    for (const OptionText& option : program.options) {
      if (option.name != "--help") {
        options.push_back(option);
      }
    }
  }
  options.erase(std::remove_if(options.begin(), options.end(),
                               [](const OptionText& option) { return option.positional; }),
                options.end());
  return options;
}

// "'slot list --config' | ...": a word behind one of these is its value, and no verb.
std::string OptionsWithValue(const Verb& program, const std::vector<const Verb*>& all,
                             const char* between) {
  std::vector<std::string> names;
  for (const Verb* verb : all) {
    for (const OptionText& option : OptionsOf(*verb, program)) {
      if (!option.value.empty()) {
        names.push_back(absl::StrFormat("'%s %s'", verb->path, option.name));
      }
    }
  }
  return absl::StrJoin(names, between);
}

std::string Steps(const std::vector<const Verb*>& all) {
  std::string steps;
  for (const Verb* verb : all) {
    if (!verb->path.empty()) {
      steps += absl::StrFormat("      '%s %s') verb='%s' ;;\n", ParentOf(*verb), NameOf(*verb),
                               verb->path);
    }
  }
  return steps;
}

std::string Bash(const Verb& program, const std::vector<const Verb*>& all) {
  std::string words;
  for (const Verb* verb : all) {
    std::vector<std::string> names;
    for (const Verb& below : verb->verbs) {
      names.push_back(NameOf(below));
    }
    for (const OptionText& option : OptionsOf(*verb, program)) {
      names.push_back(option.name);
    }
    words += absl::StrFormat("    '%s') words='%s' ;;\n", verb->path, absl::StrJoin(names, " "));
  }
  const std::string valued = OptionsWithValue(program, all, " | ");
  return absl::StrFormat(
      "# bash completion of walpost, made by `walpost completion bash`\n"
      "_walpost() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} verb='' previous='' word words='' i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=${COMP_WORDS[i]}\n"
      "    case \"$verb $previous\" in\n"
      "      %s) previous='' && continue ;;\n"
      "    esac\n"
      "    previous=$word\n"
      "    case \"$verb $word\" in\n%s    esac\n"
      "  done\n"
      "  COMPREPLY=()\n"
      "  case \"$verb $previous\" in\n"
      "    %s) return ;;\n"
      "  esac\n"
      "  case $verb in\n%s  esac\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
      "}\n"
      "complete -o default -F _walpost walpost\n",
      valued, Steps(all), valued, words);
}

std::string ZshItem(const std::string& name, const std::string& help) {
  return absl::StrFormat(" '%s:%s'", name,
                         absl::StrReplaceAll(help, {{"'", "'\\''"}, {":", "\\:"}}));
}

std::string Zsh(const Verb& program, const std::vector<const Verb*>& all) {
  std::string items;
  for (const Verb* verb : all) {
    items += absl::StrFormat("    '%s') items=(", verb->path);
    for (const Verb& below : verb->verbs) {
      items += ZshItem(NameOf(below), below.help);
    }
    for (const OptionText& option : OptionsOf(*verb, program)) {
      items += ZshItem(option.name, option.help);
    }
    items += ") ;;\n";
  }
  const std::string valued = OptionsWithValue(program, all, " | ");
  return absl::StrFormat(
      "#compdef walpost\n"
      "# zsh completion of walpost, made by `walpost completion zsh`\n"
      "_walpost() {\n"
      "  local verb='' previous='' word i\n"
      "  local -a items\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    word=${words[i]}\n"
      "    case \"$verb $previous\" in\n"
      "      %s) previous=''; continue ;;\n"
      "    esac\n"
      "    previous=$word\n"
      "    case \"$verb $word\" in\n%s    esac\n"
      "  done\n"
      "  case \"$verb $previous\" in\n"
      "    %s) _files; return ;;\n"
      "  esac\n"
      "  case $verb in\n%s  esac\n"
      "  _describe walpost items || _files\n"
      "}\n"
      "compdef _walpost walpost\n",
      valued, Steps(all), valued, items);
}

std::string FishText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}});
}

std::string Fish(const Verb& program, const std::vector<const Verb*>& all) {
  std::string paths;
  std::string completes;
  for (const Verb* verb : all) {
    if (!verb->path.empty()) {
      paths += absl::StrFormat(" '%s'", verb->path);
    }
    const std::string at =
        absl::StrFormat("complete -c walpost -n '__walpost_at \"%s\"'", verb->path);
    for (const Verb& below : verb->verbs) {
      completes +=
          absl::StrFormat("%s -f -a '%s' -d '%s'\n", at, NameOf(below), FishText(below.help));
    }
    for (const OptionText& option : OptionsOf(*verb, program)) {
      completes += absl::StrFormat("%s -l '%s'%s -d '%s'\n", at, option.name.substr(2),
                                   option.value.empty() ? "" : " -r", FishText(option.help));
    }
  }
  return absl::StrFormat(
      "# fish completion of walpost, made by `walpost completion fish`\n"
      "function __walpost_at\n"
      "    set -l verb ''\n"
      "    set -l previous ''\n"
      "    for word in (commandline -opc)[2..-1]\n"
      "        if contains -- \"$verb $previous\" %s\n"
      "            set previous ''\n"
      "            continue\n"
      "        end\n"
      "        set previous $word\n"
      "        set -l next (string trim \"$verb $word\")\n"
      "        if contains -- $next%s\n"
      "            set verb $next\n"
      "        end\n"
      "    end\n"
      "    test \"$verb\" = \"$argv[1]\"\n"
      "end\n%s",
      OptionsWithValue(program, all, " "), paths, completes);
}

nlohmann::ordered_json AsJson(const Verb& verb) {
  nlohmann::ordered_json json;
  json["path"] = verb.path;
  json["help"] = verb.help;
  json["options"] = nlohmann::ordered_json::array();
  for (const OptionText& option : verb.options) {
    json["options"].push_back({{"name", option.name},
                               {"help", option.help},
                               {"value", option.value},
                               {"default", option.preset},
                               {"positional", option.positional}});
  }
  json["verbs"] = nlohmann::ordered_json::array();
  for (const Verb& below : verb.verbs) {
    json["verbs"].push_back(AsJson(below));
  }
  return json;
}

}  // namespace

std::string Completion(const CLI::App& app, std::string_view shell) {
  const Verb program = VerbOf(app, "");
  std::vector<const Verb*> all;
  Flatten(program, &all);
  return shell == "bash"   ? Bash(program, all)
         : shell == "zsh"  ? Zsh(program, all)
         : shell == "fish" ? Fish(program, all)
                           : base::JsonText(AsJson(program), 2) + "\n";
}

void AddCompletionVerb(CLI::App* app, std::string* shell) {
  CLI::App* completion = app->add_subcommand("completion", "Print a completion script for a shell");
  completion->require_subcommand(1);
  for (const char* name : {"bash", "zsh", "fish"}) {
    completion->add_subcommand(name, absl::StrFormat("The one for %s", name))
        ->callback([shell, name] { *shell = name; });
  }
  // What man pages are made of.
  completion->add_subcommand("json", "Verbs and options as JSON")->group("")->callback([shell] {
    *shell = "json";
  });
}

}  // namespace walpost::cli
