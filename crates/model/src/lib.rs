//! Data of Open Agent: messages, stream events, usage, prices, requests and the provider port
