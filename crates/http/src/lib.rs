//! HTTP client and SSE decoder shared by everything that speaks HTTP
