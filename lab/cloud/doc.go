// Package cloud simulates a cloud and OpenShift's machine API: MachineSets keep their number of Machines, and each
// Machine becomes a simulated host that boots with its user data and runs until the Machine is deleted.
//
//	MachineSet ──▶ Machine: Provisioning ──▶ Provisioned ──▶ Running ──▶ Deleting ──▶ gone
//	                  │ user data is read     │ address, providerID,      │ drain, host switched off,
//	                  ▼ once                  │ the host boots            │ Node deleted
//	               Failed                     ▼
//	                                     a Node with its address: providerID on the Node, nodeRef on the Machine
//
// The demo and the end-to-end tests run a cloud in addition to the control plane, with an administrator's rights.
// Product code never imports it. Annotations inject faults: see Fault. Like a real cloud, the package depends on only
// one object of the operator, the user data secret.
package cloud
