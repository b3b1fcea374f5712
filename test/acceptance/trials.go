package acceptance

import "maps"

// Reasons why only the project's own tests can show a row.
const (
	byTests   = "`make test` tries it; it takes a host that is broken on purpose, or looks into one"
	atBuild   = "it is about how the product is built and installed; `make test` tries it"
	insideIt  = "a cluster's API does not show what is inside a host; `make test` tries it under Wine"
	byAttack  = "it takes the credentials of a host that is taken over; `make test` tries it"
	fleetOnly = "it takes another build of the operator, which a run does not install; `make test` tries it"
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
		"it changes credentials of the whole cluster; `make test` tries it":                 {"A21", "A23", "A26"},
		"a proxy that is not there would stop pulls on all nodes; `make test` tries it":     {"A24"},
		"replacing the key replaces Machines, which a run never does; `make test` tries it": {"A18"},
		"it takes 500 nodes; `make bench-config` measures it":                               {"A27"},
		"it takes alerts that fire, and a Prometheus; `make test` tries it":                 {"A37", "A70"},
	} {
		for _, row := range rows {
			all[row] = trial{why: why}
		}
	}
	return all
}
