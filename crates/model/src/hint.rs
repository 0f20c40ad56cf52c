//! What a user could change so that a request works. Data only: the library and the command line each put it into words
//! in the terms of their own options.

/// What a user could change so that a request works.
///
/// # Examples
///
/// ```
/// use open_agent_model::ProviderHint;
///
/// fn advice(hint: &ProviderHint) -> String {
///     match hint {
///         ProviderHint::SetKey { variables } => format!("set {}", variables.join(" or ")),
///         _ => "see the settings page".to_owned(),
///     }
/// }
/// # let hint = ProviderHint::SetKey { variables: vec!["A_KEY".into()] };
/// # assert_eq!(advice(&hint), "set A_KEY");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderHint {
    /// A key is needed and none was given.
    SetKey {
        /// The environment variables that are read for it.
        variables: Vec<String>,
    },
    /// The key was refused.
    CheckKey {
        /// The environment variables that are read for it.
        variables: Vec<String>,
    },
    /// There is no base URL: the provider has none of its own, or an empty one was given.
    SetBaseUrl,
    /// The base URL cannot be right: it is not a URL, or does not lead to an API.
    CheckBaseUrl,
    /// The server redirects to this address.
    FollowBaseUrl {
        /// The address, without its query.
        to: String,
    },
    /// Nothing answers at the base URL.
    CheckServer,
    /// The server speaks another API than the provider that was chosen.
    ChangeProvider {
        /// The provider whose API the server speaks; `None` if it is chosen already.
        provider: Option<String>,
        /// What the base URL should point to, as a noun phrase.
        base_url: String,
        /// Whether one of both changes is enough.
        changes: Changes,
    },
}

/// How many of two changes are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Either of them.
    Either,
    /// Both of them.
    Both,
}
