//! Files and processes: what policy judges is carried out here
