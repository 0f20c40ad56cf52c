//! An agent SDK: prompt, model, tools, results, in your own process
