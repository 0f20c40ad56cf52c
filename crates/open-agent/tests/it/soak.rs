//! Many runs against a server that fails at random.
