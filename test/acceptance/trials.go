package acceptance

import "maps"

// Reasons why only the project's own tests can show a row.
const (
	byTests   = "the row needs a broken host, or a look into a host; `make test` tests it"
	atBuild   = "the row is about the build and the installation; `make test` tests it"
	insideIt  = "a cluster's API does not show the inside of a host; `make test` tests the row under Wine"
	byAttack  = "the row needs the credentials of a compromised host; `make test` tests it"
	fleetOnly = "the row needs another build of the operator, which a run does not install; `make test` tests it"
)

// trials returns how to test each row of the acceptance list.
func trials() map[string]trial {
	all := elsewhere()
	for _, part := range []map[string]trial{joining(), manifests(), removing(), observing(), entriesOfTrouble(),
		nodesOfOurs(), rights(), workloads(), settings()} {
		maps.Copy(all, part)
	}
	return all
}

// elsewhere returns the rows that no run on a user's cluster can show.
func elsewhere() map[string]trial {
	all := map[string]trial{}
	for why, rows := range map[string][]string{
		byTests:  {"A09", "A11", "A17", "A19", "A33", "A43", "A45"},
		insideIt: {"A06", "A13", "A14", "A16", "A41", "A42", "A44", "A46"},
		byAttack: {"A50", "A51", "A52", "A53", "A54", "A55"},
		atBuild: {"A64", "A65", "A66", "A67", "A71", "A74", "A75", "A80", "A81", "A82", "A83",
			"A84", "A85", "A86", "A87", "A88", "A90", "A91"},
		fleetOnly: {"A28", "A29", "A31"},
		"the row changes credentials of the whole cluster; `make test` tests it":            {"A21", "A23", "A26"},
		"a missing proxy would stop pulls on all nodes; `make test` tests it":               {"A24"},
		"replacing the key replaces Machines, which a run never does; `make test` tests it": {"A18"},
		"the row needs 500 nodes; `make bench-config` measures it":                          {"A27"},
		"the row needs a Prometheus and firing alerts; `make test` tests it":                {"A37", "A70"},
	} {
		for _, row := range rows {
			all[row] = trial{why: why}
		}
	}
	return all
}
