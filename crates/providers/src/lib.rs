//! Anthropic and OpenAI-compatible model providers
