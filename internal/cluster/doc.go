// Package cluster answers what the cluster is like that Windows hosts are to join: it reads facts with a client, checks them, and fills in
// blueprint.Facts.
//
// The publisher uses it through Source, which is the seam for clusters other than OpenShift; Reader is OpenShift's. Everything read is taken for
// hostile until it is parsed. What is missing or wrong comes back as *contract.Problem values that name the object and what to do, all of them at once.
// It writes nothing, and decides nothing about nodes.
//
// Rights that Reader needs. "Cached" objects are watched through the manager's cache, each by its name (see Inputs), so that get, list and watch can be
// limited with resourceNames; "live" ones are read when something changed, and every ten minutes:
//
//	config.openshift.io            infrastructures      cluster                    get list watch   cached
//	config.openshift.io            networks             cluster                    get list watch   cached
//	operator.openshift.io          networks             cluster                    get list watch   cached
//	machineconfiguration.…         controllerconfigs    machine-config-controller  get list watch   cached
//	machineconfiguration.…         machineconfigpools   worker                     get list watch   cached
//	machineconfiguration.…         machineconfigs       (rendered, any name)       get              live
//	""  in the namespace openshift-machine-config-operator:
//	                               secrets              node-bootstrapper-token    get              live
//	nonResourceURL                 /version             -                          get              live; every identity may
package cluster
