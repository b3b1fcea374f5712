// Package cloud answers what a cloud and OpenShift's machine API would do with Machines:
// MachineSets keep their number of Machines, and each Machine becomes a simulated host that boots
// with the user data it was given, until it is deleted.
//
//	MachineSet ──▶ Machine: Provisioning ──▶ Provisioned ──▶ Running ──▶ Deleting ──▶ gone
//	                  │ user data is read     │ address, providerID,      │ drain, host switched off,
//	                  ▼ once                  │ the host boots            │ Node deleted
//	               Failed                     ▼
//	                                     a Node with its address: providerID on the Node, nodeRef on the Machine
//
// The demo and the end-to-end tests run one beside the control plane, with an administrator's
// rights; product code never imports it. What goes wrong in clouds is asked for by annotations: see
// Fault. It renders nothing and asks the operator nothing: of the operator it knows the user data
// secret only, as a cloud does.
package cloud
