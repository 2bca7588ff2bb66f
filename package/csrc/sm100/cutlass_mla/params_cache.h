// Remembers the parameters of launches. Encoding their 21 tensor maps takes longer than all else
// that the host does, and a layer repeats its launch every step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace mla::sm100 {

inline constexpr size_t kKeyWords = 48;

// All values that the parameters of a launch are made from, one word each.
class ParamsKey {
 public:
  template <class... Words>
  explicit ParamsKey(Words... words) : words_{word(words)...} {
    static_assert(sizeof...(Words) <= kKeyWords);
  }

  bool operator==(const ParamsKey& other) const { return words_ == other.words_; }

  size_t hash() const {
    uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, a word at a time
    for (const uint64_t word : words_) hash = (hash ^ word) * 0x100000001b3;
    return static_cast<size_t>(hash ^ hash >> 32);
  }

 private:
  static uint64_t word(const volatile void* pointer) {
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer));
  }
  static uint64_t word(int64_t value) { return static_cast<uint64_t>(value); }
  static uint64_t word(int32_t value) { return static_cast<uint64_t>(value); }
  static uint64_t word(bool value) { return value ? 1 : 0; }
  static uint64_t word(float value) { return __builtin_bit_cast(uint32_t, value); }

  std::array<uint64_t, kKeyWords> words_;
};

// A direct-mapped cache: of two keys with the same hash, the later one stays.
template <class Params>
class ParamsCache {
 public:
  // Returns the parameters of `key`, made by `make()` where they are not cached.
  template <class Make>
  const Params& find(const ParamsKey& key, const Make& make) {
    std::unique_ptr<Entry>& entry = entries_[key.hash() % kEntries];
    if (entry == nullptr || !(entry->key == key)) entry.reset(new Entry{key, make()});
    return entry->params;
  }

 private:
  static constexpr size_t kEntries = 1021;

  struct Entry {
    ParamsKey key;
    Params params;
  };

  std::array<std::unique_ptr<Entry>, kEntries> entries_;
};

}  // namespace mla::sm100
