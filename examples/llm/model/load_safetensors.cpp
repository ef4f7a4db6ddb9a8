// A Llama-architecture model out of Hugging Face's files.
#include <algorithm>
#include <deque>
#include <filesystem>
#include <list>

#include "llm/model/failure.hpp"
#include "llm/model/hugging_face_config.hpp"
#include "llm/model/json_file.hpp"
#include "llm/model/loaders.hpp"
#include "llm/model/safetensors.hpp"
#include "llm/model/weights.hpp"

namespace llm {
namespace {

struct Located {
  const SafetensorsEntry* entry;
  const std::string* path;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t axis = 0; axis < shape.size(); ++axis)
    text.append(axis > 0 ? ", " : "").append(std::to_string(shape[axis]));
  return text + "]";
}

StoredTensor as_stored(const WeightSlot& slot, const Located& found) {
  const std::string& name = slot.hugging_face_name;
  const SafetensorsEntry& entry = *found.entry;
  const std::vector<int64_t> wanted =
      slot.is_norm ? std::vector<int64_t>{slot.cols} : std::vector<int64_t>{slot.rows, slot.cols};
  check_io(entry.shape == wanted, *found.path, ": tensor ", name, " has the shape ",
           shape_text(entry.shape), ", must be ", shape_text(wanted), " by config.json");
  ElementFormat format = ElementFormat::kFloat32;
  if (entry.dtype == "F16") {
    format = ElementFormat::kFloat16;
  } else if (entry.dtype == "BF16") {
    format = ElementFormat::kBFloat16;
  } else {
    check_supported(entry.dtype == "F32", *found.path, ": tensor ", name, " is of dtype ",
                    entry.dtype, "; F32, F16 and BF16 are read here");
  }
  const auto num_bytes = static_cast<uint64_t>(slot.rows * slot.cols * info_of(format).block_bytes);
  check_io(entry.bytes.size() == num_bytes, *found.path, ": tensor ", name, " has ",
           entry.bytes.size(), " bytes, must have ", num_bytes, " by its shape and dtype");
  return {name, format, entry.bytes};
}

// Tensors that some checkpoints carry though they are computed or tied.
bool is_needless(const std::string& name, const ModelConfig& config) {
  return name.ends_with("rotary_emb.inv_freq") ||
         (config.tied_embeddings && name == "lm_head.weight");
}

// The files that the index names, each once. They must lie beside it.
std::vector<std::string> shard_paths(const std::filesystem::path& index) {
  const MappedFile file(index.string());
  const auto bytes = file.view().bytes;
  const nlohmann::json parsed =
      parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.view().path);
  const nlohmann::json& names = json_member(parsed, "weight_map");
  check_io(names.is_object(), index.string(), ": weight_map must be an object");
  std::vector<std::string> paths;
  for (const auto& [tensor, value] : names.items()) {
    check_io(value.is_string(), index.string(), ": the shard of ", tensor, " must be a string");
    const std::filesystem::path shard = value.get<std::string>();
    check_io(shard.has_filename() && shard == shard.filename() && shard != "..", index.string(),
             ": the shard of ", tensor, " is \"", shard.string(),
             "\", must be the name of a file beside the index");
    paths.push_back((index.parent_path() / shard).string());
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

}  // namespace

Model assemble_safetensors(FileView config, const std::vector<FileView>& shards,
                           const LoadOptions& options) {
  std::deque<SafetensorsFile> files;  // entries keep their places
  std::map<std::string_view, Located> tensors;
  for (const FileView shard : shards) {
    const SafetensorsFile& file = files.emplace_back(shard);
    for (const auto& [name, entry] : file.entries()) {
      check_io(tensors.try_emplace(name, Located{&entry, &file.path()}).second, shard.path,
               ": tensor ", name, " is in another shard too");
    }
  }
  Model model;
  model.config = read_hugging_face_config(config);
  check_io(num_matrices(model.config) <= std::ssize(tensors), config.path,
           ": num_hidden_layers is ", model.config.num_layers, ", which takes ",
           num_matrices(model.config), " tensors, but there are only ", tensors.size());
  const std::vector<WeightSlot> slots = make_weight_slots(model);
  std::vector<StoredTensor> stored;
  for (const WeightSlot& slot : slots) {
    const auto found = tensors.find(slot.hugging_face_name);
    check_io(found != tensors.end(), config.path, ": tensor ", slot.hugging_face_name,
             " is missing from the safetensors files");
    stored.push_back(as_stored(slot, found->second));
    tensors.erase(found);
  }
  for (const auto& [name, located] : tensors) {
    check_supported(is_needless(std::string(name), model.config), *located.path, ": tensor ", name,
                    " is no part of a Llama model as it is computed here");
  }
  fill_weights(slots, stored, options, config.path);
  return model;
}

Model load_safetensors(const std::string& directory, const std::vector<std::string>& shards,
                       const LoadOptions& options) {
  const MappedFile config((std::filesystem::path(directory) / "config.json").string());
  std::list<MappedFile> files;
  std::vector<FileView> views;
  for (const std::string& shard : shards) views.push_back(files.emplace_back(shard).view());
  return assemble_safetensors(config.view(), views, options);
}

Model load_hugging_face_directory(const std::string& directory, const LoadOptions& options) {
  const std::filesystem::path folder(directory);
  const std::filesystem::path single = folder / "model.safetensors";
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  if (std::filesystem::exists(single))
    return load_safetensors(directory, {single.string()}, options);
  check_io(
      std::filesystem::exists(index), directory,
      ": holds neither model.safetensors nor model.safetensors.index.json, nor one .gguf file");
  return load_safetensors(directory, shard_paths(index), options);
}

}  // namespace llm
